"""A price list of a few machines, as SkyPilot keeps the one that it downloads."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path

# Region → zones as AWS numbers them; SkyPilot asks AWS (moto here) for the names that an account gives them.
ZONES = {"us-east-1": ("use1-az1", "use1-az4"), "us-west-2": ("usw2-az1", "usw2-az2")}

IMAGE = "ami-1e749f67"  # a Ubuntu that moto knows in every region

# Instance type: accelerator, how many, GiB of each, cores, GiB of memory, $/h on demand and spot (this list's
# own figure: the market makes it), in us-east-1. The other region is a tenth dearer.
MACHINES: Mapping[str, tuple[str, int, int, int, int, float, float]] = {
    "m6i.large": ("", 0, 0, 2, 8, 0.096, 0.035),
    "m6i.2xlarge": ("", 0, 0, 8, 32, 0.384, 0.14),
    "g4dn.xlarge": ("T4", 1, 16, 4, 16, 0.526, 0.2),
    "g5.xlarge": ("A10G", 1, 24, 4, 16, 1.006, 0.4),
    "g6.xlarge": ("L4", 1, 22, 4, 16, 0.8048, 0.3),
    "g6.2xlarge": ("L4", 1, 22, 8, 32, 0.9776, 0.36),
    "g6.12xlarge": ("L4", 4, 22, 48, 192, 4.6016, 1.7),
    "p3.2xlarge": ("V100", 1, 16, 8, 61, 3.06, 1.0),
}
QUOTAS = {
    "g": ("L-DB2E81BA", "L-3819A6DF"),
    "p": ("L-417A185B", "L-7212CCBC"),
    "m": ("L-1216C47A", "L-34B43A08"),
}


def write_catalog(home: Path) -> Path:
    """Put the list where the SkyPilot of this HOME looks; the folder of it."""
    folder = home / ".sky" / "catalogs" / "v8"
    _write(folder / "aws" / "vms.csv", _machines())
    _write(folder / "aws" / "images.csv", _images())
    codes = {name: QUOTAS[name[0]] for name in MACHINES}
    _write(
        folder / "aws" / "instance_quota_mapping.csv",
        (
            {"InstanceType": name, "OnDemandInstanceCode": demand, "SpotInstanceCode": spot}
            for name, (demand, spot) in codes.items()
        ),
    )
    names = dict.fromkeys(name for name, *_ in MACHINES.values() if name)
    _write(
        folder / "common" / "accelerators.csv",
        ({"AcceleratorName": name, "Clouds": "['AWS']"} for name in names),
    )
    return folder


def _machines() -> Iterable[Mapping[str, object]]:
    for name, (gpu, count, size, cores, memory, price, spot) in MACHINES.items():
        info = {
            "Gpus": [
                {
                    "Name": gpu,
                    "Manufacturer": "NVIDIA",
                    "Count": count,
                    "MemoryInfo": {"SizeInMiB": size * 1024},
                }
            ],
            "TotalGpuMemoryInMiB": count * size * 1024,
        }
        for region, zones in ZONES.items():
            dearer = 1.0 if region == "us-east-1" else 1.1
            for zone in zones:
                yield {
                    "InstanceType": name,
                    "AcceleratorName": gpu,
                    "AcceleratorCount": float(count) if gpu else "",
                    "vCPUs": float(cores),
                    "MemoryGiB": float(memory),
                    "GpuInfo": str(info) if gpu else "",
                    "Price": round(price * dearer, 4),
                    "SpotPrice": round(spot * dearer, 4),
                    "Region": region,
                    "AvailabilityZone": zone,
                    "Arch": "x86_64",
                }


def _images() -> Iterable[Mapping[str, object]]:
    for tag in ("skypilot:custom-gpu-ubuntu-cuda13", "skypilot:custom-cpu-ubuntu"):
        for region in ZONES:
            yield {
                "Tag": tag,
                "Region": region,
                "OS": "ubuntu",
                "OSVersion": "24.04",
                "ImageId": IMAGE,
                "CreationDate": "20260101",
                "BaseImageId": "",
            }


def _write(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    rows = list(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
