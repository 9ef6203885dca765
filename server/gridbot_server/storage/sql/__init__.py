"""The SQL beside the code: files of blocks that begin with `-- name: x`, and the migrations."""

from importlib import resources


def load(name: str) -> dict[str, bytes]:
    """Return the named blocks of one file; bytes, because psycopg's types trust those."""
    text = resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
    blocks: dict[str, bytes] = {}
    for block in text.split("-- name: ")[1:]:
        title, _, body = block.partition("\n")
        blocks[title.strip()] = body.strip().encode()
    return blocks


def migrations() -> list[tuple[int, str, bytes]]:
    """Return (version, name, SQL) of every migration, in order."""
    folder = resources.files(__name__).joinpath("migrations")
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda f: f.name
    )
    return [(int(file.name[:4]), file.name, file.read_bytes()) for file in files]
