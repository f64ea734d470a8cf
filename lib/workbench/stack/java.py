"""How a Java of the embedded stack is started: tuned for short, small work, with a log that does not grow for ever."""
from __future__ import annotations

import os
from pathlib import Path
from typing import List, Sequence

from ..base.params import COMPILERS, World
from . import artifacts
from .process import log_file

LOG_SIZE = 10 << 20  # bytes. PostgreSQL's log holds warnings and errors only, and has no cap


def tuned(compiler: str) -> List[str]:
    """Options of every Java: the cheapest collector starts in half the time. UTC, as no clock here goes back."""
    return ["-XX:+UseSerialGC", "-XX:-UsePerfData", "-Djava.net.preferIPv4Stack=true", "-Duser.timezone=UTC",
            *COMPILERS[compiler]]


def logging(name: str, level: str = "info") -> List[str]:
    """Options by which a Java writes its log, size and all, into `log_file(name)`."""
    return [f"-Dlog4j2.configurationFile={artifacts.CONF / 'log4j2.properties'}", f"-Dworkbench.log={log_file(name)}",
            f"-Dworkbench.level={level}", f"-Dworkbench.log_size={LOG_SIZE}"]


def command(world: World, name: str, heap: str, classpath: Sequence[Path], main: str, *args: object,
            options: Sequence[str] = ()) -> List[str]:
    """The command line of a service that is a Java program: its heap, class path, main class and arguments."""
    return [str(artifacts.java_home() / "bin" / "java"), *tuned(world.stack.java_compiler), f"-Xmx{heap}", *options,
            *logging(name), "-cp", os.pathsep.join(map(str, classpath)), main, *map(str, args)]
