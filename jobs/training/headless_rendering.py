"""Drawing without a screen: one picture as an evaluation draws it, and what to do where that fails.

VMAS draws with OpenGL, through pyglet; where there is no screen it wants EGL. Each part that can be missing
fails in its own words, most of which name something else than what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import CDLL
from dataclasses import dataclass

from orchestrator.core.installation import install_package

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
    """Why nothing can be drawn here, and what a person can do about it."""

    found: str
    fix: str


def draw_vmas() -> tuple[int, ...]:
    """Draw one picture of a VMAS environment without a screen; its shape. Raises whatever is in the way."""
    import vmas

    environment = vmas.make_env("navigation", num_envs=1, device="cpu", seed=0)
    environment.reset()
    picture = environment.render(mode="rgb_array")
    return tuple(int(size) for size in picture.shape)


def obstacle(error: BaseException) -> Obstacle:
    """What stands behind an error of a drawing library."""
    for link in _chain(error):
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
    """EGL is asked first; the screen, of which the error speaks, is what VMAS tries without it."""
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
    """Debian's packages and Fedora's; a cluster's site has them as modules, if at all."""
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


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
