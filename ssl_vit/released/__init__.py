"""Weights that others released, in their own layouts: read safely, turned into timm's networks, adapted to images."""
