"""What happens to one image, or to one set of vectors. Nothing here knows of Ray."""
