"""Studies: experiments at toy scale whose outcome is reported, whatever it is.

people.py      articulated people with a body part for every pixel, drawn from a seed
objectives.py  which pretraining objective gives patch features that a linear probe reads body parts from
"""
