"""Registers the project's own networks, so that ``timm.create_model`` knows them."""

import ssl_vit.models.families as families

__all__ = ["families"]
