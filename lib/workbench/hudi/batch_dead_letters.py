"""The dead letters of an ingest: one folder for each batch, which belongs to the batch's commit.

A batch writes its folder before the commit, so that no dead letter is lost if the process is killed
after it. Until then the folder is hidden. The commit names it.
"""

from __future__ import annotations

import re
import uuid

from ..base import World, files
from .changes import SourceProgress, position
from .tables import Table, dead_letters_path

# `<position of the source after the batch>-<id>`, with a dot before it while it is hidden
FOLDER_NAME = re.compile(r"(?P<dot>\.?)(?P<name>(?P<end>\d+)-\w+)")


class BatchDeadLetters:
    """The folders of a source's dead letters below those of a table."""

    def __init__(self, world: World, table: Table, source_id: str):
        """Take the folders of a source of a table."""
        self.uri = f"{dead_letters_path(world, table)}/{source_id}"

    def new_name(self, progress: SourceProgress) -> str:
        """Return a new name for the folder of a batch.

        Args:
            progress: the position in the source after the batch.
        """
        return f"{position(progress)}-{uuid.uuid4().hex}"

    def hidden_uri(self, progress: SourceProgress) -> str:
        """Return where the dead letters of a batch are written before its commit."""
        return f"{self.uri}/.{progress['dead_letters']}"

    def show(self, progress: SourceProgress) -> None:
        """Show the dead letters of a batch that is committed."""
        name = progress.get("dead_letters")
        if f".{name}" in self._names():
            files.move(f"{self.uri}/.{name}", f"{self.uri}/{name}")

    def recover(self, last: SourceProgress, keeps_shown: bool) -> None:
        """Show the dead letters of the last commit; remove those of batches that no commit has.

        These are of failed attempts, which are hidden, or of a commit that was restored.

        Args:
            last: the progress in the last commit; empty without one.
            keeps_shown: whether to remove hidden ones only.
        """
        kept = {last.get("dead_letters"), *last.get("replaced", [])}
        for folder in filter(None, map(FOLDER_NAME.fullmatch, self._names())):
            is_later = int(folder["end"]) > position(last) and not keeps_shown
            if folder["name"] not in kept and (folder["dot"] or is_later):
                files.remove(f"{self.uri}/{folder[0]}")
        self.show(last)

    def replaced_by(self, last: SourceProgress, begins_replay: bool) -> list[str]:
        """Return the names of the folders that are obsolete when a replay has read all messages again."""
        if not begins_replay and not last.get("replaced"):
            return []
        shown = {name for name in self._names() if not name.startswith(".")}
        return sorted(shown if begins_replay else shown & {*last.get("replaced", [])})

    def remove_replaced(self, last: SourceProgress) -> None:
        """Remove the dead letters that a replay has replaced, which is complete now."""
        for name in self.replaced_by(last, begins_replay=False):
            files.remove(f"{self.uri}/{name}")

    def _names(self) -> set[str]:
        return {info.base_name for info in files.list_dir(self.uri)}
