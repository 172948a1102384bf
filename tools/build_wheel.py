"""Builds the wheel so that the same commit gives the same bytes, in whatever folder, at whatever time, for whomever.

    python tools/build_wheel.py [FOLDER]

What a wheel tells of its machine are the times and the modes of files. The time is SOURCE_DATE_EPOCH, or else that of
the last commit; the modes are those of a copy that everybody may read. Nothing is fetched: setuptools must be there.
Another version of setuptools or of Python's zlib may write other bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "src")
LEFT_BY_TOOLS = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*")


def build(root: Path, folder: Path) -> Path:
    """The wheel of the project at `root`, written to `folder`."""
    with tempfile.TemporaryDirectory() as scratch:
        copy(root, Path(scratch) / "tree")
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder.absolute())]
        where = Path(scratch) / "tree"
        done = subprocess.run(command, cwd=where, env=environment(root), umask=0o022, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stdout + done.stderr)
    (wheel,) = folder.glob("*.whl")
    return wheel


def copy(root: Path, tree: Path) -> None:
    tree.mkdir()
    for part in PARTS:
        if (root / part).is_dir():
            shutil.copytree(root / part, tree / part, ignore=LEFT_BY_TOOLS)
        else:
            shutil.copy(root / part, tree / part)
    for path in tree.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def environment(root: Path) -> dict[str, str]:
    time = os.environ.get("SOURCE_DATE_EPOCH") or last_commit(root)
    return {**os.environ, "SOURCE_DATE_EPOCH": time} if time else dict(os.environ)


def last_commit(root: Path) -> str:
    """Its time in seconds, or nothing where there is no git or no commit."""
    try:
        told = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=root, capture_output=True, text=True)
    except FileNotFoundError:
        return ""
    return told.stdout.strip()


if __name__ == "__main__":
    print(build(ROOT, Path(sys.argv[1] if len(sys.argv) > 1 else "dist")))
