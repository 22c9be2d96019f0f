"""What leaves the project: folders that plain timm loads."""
