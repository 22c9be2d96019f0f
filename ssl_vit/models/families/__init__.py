"""Networks that timm does not know, with timm's manners: importing this registers them, one file each."""

from importlib import import_module
from pkgutil import iter_modules

from timm.models import model_entrypoint

for _file in iter_modules(__path__, f"{__name__}."):
    import_module(_file.name)


def ours(architecture: str) -> bool:
    """Whether plain timm knows a model only after ``import ssl_vit.families``.

    Args:
        architecture: timm's name of it.
    """
    return model_entrypoint(architecture.partition(".")[0]).__module__.startswith(__name__)
