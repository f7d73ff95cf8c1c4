"""Draw without a screen: one picture as an evaluation draws it, and the fix where that fails.

VMAS draws with OpenGL through pyglet; without a screen it wants EGL. Each missing part fails with its own
error, which mostly names another part.
"""

from __future__ import annotations

from ctypes import CDLL
from dataclasses import dataclass

from jobs.training.records.error_chain import error_chain
from orchestrator.core.machine.installation import install_package

_LONGEST = 200
_NO_DEVICE = (
    "NoSuchDisplayException",
    "NoSuchConfigException",
    "NoSuchScreenModeException",
    "ContextException",
)
_EGL = "libEGL.so.1"


@dataclass(frozen=True)
class Obstacle:
    """Why drawing fails here, and the fix."""

    found: str
    fix: str


def draw_vmas() -> tuple[int, ...]:
    """Draw one picture of a VMAS environment without a screen; return its shape. Raises any error."""
    import vmas

    environment = vmas.make_env("navigation", num_envs=1, device="cpu", seed=0)
    environment.reset()
    picture = environment.render(mode="rgb_array")
    return tuple(int(size) for size in picture.shape)


def obstacle(error: BaseException) -> Obstacle:
    """Find the cause of a drawing library's error."""
    for link in error_chain(error):
        if isinstance(link, ModuleNotFoundError):
            package = (link.name or "pyglet").partition(".")[0]
            return Obstacle(f"no Python package {package}", _pip(package))
        if isinstance(link, ImportError) and 'Library "' in str(link):
            name = str(link).split('"')[1]
            return Obstacle(f"no library lib{name}", _install(name))
        if type(link).__name__ in _NO_DEVICE:
            return _no_device()
    if "pyglet" in str(error) and isinstance(error, ImportError | AttributeError):
        return Obstacle(_reason(error), _pip("pyglet"))
    return Obstacle(_reason(error), _install("all of it"))


def _no_device() -> Obstacle:
    """Tell a missing EGL from a missing device: the error names the screen, which VMAS tries without EGL."""
    try:
        CDLL(_EGL)
    except OSError:
        return Obstacle("no screen, and no library libEGL to draw without one", _install("EGL"))
    found = "no screen, and EGL finds nothing to draw with: neither a GPU's driver nor Mesa's"
    fix = f"{_install('EGL_mesa')}; in a container with a GPU set NVIDIA_DRIVER_CAPABILITIES=all instead"
    return Obstacle(found, fix)


def _pip(package: str) -> str:
    return install_package({"pyglet": "pyglet<2"}.get(package, package))


def _install(library: str) -> str:
    """Name the packages of Debian and Fedora that hold the library."""
    debian, fedora = {
        "GLU": ("libglu1-mesa", "mesa-libGLU"),
        "EGL": ("libegl1 libgl1-mesa-dri", "libglvnd-egl mesa-dri-drivers"),
        "EGL_mesa": ("libegl-mesa0 libgl1-mesa-dri", "mesa-libEGL mesa-dri-drivers"),
    }.get(
        library, ("libgl1 libglu1-mesa libegl1 libgl1-mesa-dri", "mesa-libGLU mesa-libEGL mesa-dri-drivers")
    )
    return f"on Debian and Ubuntu apt-get install {debian}; on Fedora and RHEL dnf install {fedora}"


def _reason(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
