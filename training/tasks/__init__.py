"""The five human tasks: targets, losses, augmentation, decoding and pictures.

Pose, body parts, surface normals, pointmap and albedo.
"""
