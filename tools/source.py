"""Source trees of programs that no package registry has: CRI-O and Tekton.

A `Project` is fetched by `git` from its public repository, or from a clone of it on this machine.
Only the commit is fetched, without its history. Commits are kept in the cache of builds, so that a
build needs the network once, and tests in a network namespace need none.

A tag in a clone can be another commit than the released one, so the commits of tags are pinned.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tools.build import BuildError
from tools.cache import cache_directory, exclusive

# A connection that transfers nothing for so long has failed.
_STALLED_SECONDS = 60
_REFS = "refs/podsettle"
_TAG = re.compile(r"v\d+\.\d+\.\d+", re.ASCII)


@dataclass(frozen=True)
class Project:
    """A git repository, and the variable that names a clone of it on this machine."""

    name: str
    address: str
    variable: str
    pins: Mapping[str, str] = field(default_factory=dict)
    """The commits of tags. Other tags may be any commit."""

    def source(self) -> str | None:
        """Return the clone that the environment names, or None."""
        return os.environ.get(self.variable) or None

    def commit(self, revision: str) -> str | None:
        """Return the commit of a revision that was fetched before, or None.

        Another commit than the pinned one counts as none.
        """
        if not self._repository().is_dir():
            return None
        commit = self._commit(f"{_REFS}/{revision}")
        return commit if commit == self.pins.get(revision, commit) else None

    def fetch(self, revision: str, address: str | None = None) -> str:
        """Return the commit of a tag, branch or commit, fetched where it is not in the cache.

        `address` is a directory or a URL. The default is the clone that the environment names, else
        the public repository. A branch in a clone moves, so only released tags come from the cache.
        """
        given = address or self.source()
        if given is not None:
            self._check(given)
        commit = self.commit(revision)
        if commit is None or (given is not None and not _TAG.fullmatch(revision)):
            commit = self._fetch(revision, given or self.address)
        return commit

    def unpack(self, commit: str, directory: Path) -> None:
        """Write the files of a commit that was fetched into a directory."""
        with subprocess.Popen(
            [*self._command(), "archive", "--format=tar", commit], stdout=subprocess.PIPE
        ) as archive:
            unpacked = subprocess.run(
                ["tar", "-x", "-C", str(directory)], stdin=archive.stdout, check=False
            )
        if archive.returncode or unpacked.returncode:
            raise BuildError(f"{self.name}: commit {commit} does not unpack into {directory}")

    def _check(self, address: str) -> None:
        """Raise BuildError if an address is no repository, also if the cache has the revision."""
        _require_git(self.name)
        found = _run("git", "ls-remote", "--quiet", _as_url(address), "HEAD")
        if found.returncode != 0:
            raise BuildError(
                f"{self.name}: {address} is no git repository: {_last_line(found.stderr)}. "
                f"Give a clone: {self.variable}=DIR"
            )

    def _fetch(self, revision: str, address: str) -> str:
        _require_git(self.name)
        repository = self._repository()
        with exclusive(repository):
            if not repository.is_dir():
                made = repository.with_name(f"{repository.name}.unfinished")
                shutil.rmtree(made, ignore_errors=True)
                subprocess.run(["git", "init", "--quiet", "--bare", str(made)], check=True)
                made.rename(repository)
            fetched = self._git(
                "fetch", "--quiet", "--depth=1", "--no-tags", _as_url(address), revision
            )
            if fetched.returncode != 0:
                raise BuildError(
                    f"{self.name}: {revision} of {address}: {_last_line(fetched.stderr)}. "
                    f"Give a clone that has it: {self.variable}=DIR"
                )
            commit = self._commit("FETCH_HEAD")
            assert commit is not None, f"{revision} was fetched from {address}, but has no commit"
            if commit != (expected := self.pins.get(revision, commit)):
                raise BuildError(
                    f"{self.name}: {revision} of {address}: it is commit {commit}, but the release "
                    f"is {expected}. Give a clone of {self.address}: {self.variable}=DIR"
                )
            self._git("update-ref", f"{_REFS}/{revision}", commit)
        return commit

    def _commit(self, reference: str) -> str | None:
        found = self._git("rev-parse", "--verify", "--quiet", f"{reference}^{{commit}}")
        return found.stdout.strip() if found.returncode == 0 else None

    def _repository(self) -> Path:
        return cache_directory() / "source" / f"{self.name}.git"

    def _command(self) -> list[str]:
        return ["git", f"--git-dir={self._repository()}"]

    def _git(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return _run(*self._command(), *arguments)


def _require_git(name: str) -> None:
    if shutil.which("git") is None:
        raise BuildError(f"{name}: git is missing: apt install git")


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    # Without a terminal, git fails where it would ask for a password.
    limits = {"GIT_TERMINAL_PROMPT": "0", "GIT_HTTP_LOW_SPEED_LIMIT": "1"}
    limits["GIT_HTTP_LOW_SPEED_TIME"] = str(_STALLED_SECONDS)
    return subprocess.run(
        command,
        env=os.environ | limits,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _as_url(address: str) -> str:
    # An option that makes the copy shallow has no effect on a path.
    return address if "://" in address else Path(address).resolve().as_uri()


def _last_line(output: str) -> str:
    """Return the last line of git's errors that names a cause."""
    lines = [line for line in output.splitlines() if line.startswith("fatal: ")]
    return lines[0].removeprefix("fatal: ") if lines else output.strip() or "git failed"
