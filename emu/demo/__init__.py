"""The demonstration: handwritten digits classified by an MLP in FP8, tensor-parallel over cards.

``digits`` loads the images, ``training`` trains the MLP in float32, ``quantise`` turns tensors into
FP8 codes and a power-of-two scale, ``inference`` runs the layers on a supernode and, from the same
codes, on the reference model.
"""
