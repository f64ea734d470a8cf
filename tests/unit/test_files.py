"""Small files of the lake are written atomically."""

import pytest
from workbench.base import files


def test_what_could_not_be_written_leaves_what_was_there(tmp_path, monkeypatch):
    address = f"file:{tmp_path}/checkpoints/labels.json"
    files.write_text(address, "old")
    opened = files.open_filesystem(address)[0]

    class Full:
        """A disk that is full after the file was opened."""

        def __getattr__(self, name):
            return getattr(opened, name)

        def open_output_stream(self, path, **how):
            opened.open_output_stream(path, **how).close()
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "open_filesystem", lambda a: (Full(), a.removeprefix("file:")))
        with pytest.raises(OSError, match="No space"):
            files.write_text(address, "new")
    assert files.read_text(address) == "old"
    files.write_text(address, "new")
    assert files.read_text(address) == "new"
    assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["labels.json"]


def test_an_interrupted_move_is_repeated(tmp_path, monkeypatch):
    for name in ("source/a/1", "source/2", "source/3"):
        files.write_text(f"file:{tmp_path}/{name}", name)
    filesystem, moved = files.open_filesystem("file:/")[0], []

    class Killed:
        def __getattr__(self, name):
            return getattr(filesystem, name)

        def move(self, path, target):
            if moved:
                raise KeyboardInterrupt
            moved.append(target)
            filesystem.move(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(files, "open_filesystem", lambda uri: (Killed(), uri.removeprefix("file:")))
        with pytest.raises(KeyboardInterrupt):
            files.move(f"file:{tmp_path}/source", f"file:{tmp_path}/target")
    assert len(files.list_files(f"file:{tmp_path}")) == 3
    files.move(f"file:{tmp_path}/source", f"file:{tmp_path}/target")
    files.move(f"file:{tmp_path}/source", f"file:{tmp_path}/target")
    assert {*files.list_files(f"file:{tmp_path}")} == {"target/a/1", "target/2", "target/3"}
