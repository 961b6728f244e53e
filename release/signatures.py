"""Signatures of a release by cosign, and their verification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from release.commands import run
from release.source import Release
from tools.build import cosign

PUBLIC_KEY = "cosign.pub"
_ISSUER = "https://token.actions.githubusercontent.com"
_NO_PASSWORD = {"COSIGN_PASSWORD": ""}


@dataclass(frozen=True)
class Signer:
    """The identity that signs, as options of cosign."""

    release: Release
    signing: Sequence[str]
    verifying: Sequence[str]

    def sign_images(self, references: Sequence[str]) -> None:
        """Sign images and charts, which are named by their digests. Verify the signatures."""
        self._cosign("sign", "--yes", *self.signing, *references)
        self._cosign("verify", *self.verifying, *references)

    def sign_file(self, path: Path) -> None:
        """Sign a file, write the signature beside it, and verify the signature."""
        bundle = path.with_name(f"{path.name}.sigstore.json")
        self._cosign("sign-blob", "--yes", *self.signing, f"--bundle={bundle}", str(path))
        bundle.chmod(0o644)  # Only its owner can read what cosign writes.
        self._cosign("verify-blob", *self.verifying, f"--bundle={bundle}", str(path))

    def _cosign(self, *arguments: str) -> None:
        run(self.release, cosign(), *arguments, environment=_NO_PASSWORD)


def workflow_signer(release: Release) -> Signer:
    """Return the identity of the workflow's run. cosign writes to sigstore's transparency log."""
    workflow = f"{release.repository}/.github/workflows/release.yml@refs/tags/v{release.version}"
    identity = (f"--certificate-identity={workflow}", f"--certificate-oidc-issuer={_ISSUER}")
    return Signer(release, (), identity)


def rehearsal_signer(release: Release, out: Path, scratch: Path) -> Signer:
    """Make a key pair, and write its public key beside the release's files.

    cosign then needs no network, and no signature is in a transparency log.
    """
    run(release, cosign(), "generate-key-pair", directory=scratch, environment=_NO_PASSWORD)
    public = out / PUBLIC_KEY
    public.write_bytes((scratch / PUBLIC_KEY).read_bytes())
    no_log = ("--use-signing-config=false", "--tlog-upload=false")
    return Signer(
        release,
        (f"--key={scratch / 'cosign.key'}", *no_log),
        (f"--key={public}", "--insecure-ignore-tlog=true"),
    )
