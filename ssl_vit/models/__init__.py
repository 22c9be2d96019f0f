"""Backbones: timm models behind two small contracts."""
