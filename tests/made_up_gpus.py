"""Two GPUs of AMD, as the kernel of a machine that has them shows them below /sys."""

from pathlib import Path

_NODES: tuple[dict[str, int], ...] = (
    {"vendor_id": 0, "simd_count": 0},
    {"vendor_id": 4098, "simd_count": 416, "drm_render_minor": 128},
    {"vendor_id": 4098, "simd_count": 416, "drm_render_minor": 129},
)


def lay_amd_gpus(root: Path) -> Path:
    """Write what the driver tells into a made-up root, and return that."""
    _write(root / "sys/module/amdgpu/version", "6.7.0")
    for number, properties in enumerate(_NODES):
        node = root / f"sys/class/kfd/kfd/topology/nodes/{number}"
        _write(
            node / "properties", "".join(f"{key} {value}\n" for key, value in properties.items())
        )
    for minor, megabytes in ((128, 16_384), (129, 65_536)):
        device = root / f"sys/class/drm/renderD{minor}/device"
        _write(device / "product_name", f"Imagined MI{megabytes}")
        _write(device / "mem_info_vram_total", str(megabytes << 20))
    return root


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
