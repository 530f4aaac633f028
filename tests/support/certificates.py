"""Certificates for tests, made by openssl."""

import subprocess
from pathlib import Path

__all__ = ["make_certificate"]


def make_certificate(
    directory: Path, name: str, subject: str, *, password: str = "", host: str = "IP:127.0.0.1"
) -> Path:
    """A self-signed certificate for a host, 127.0.0.1 if no other is given, with its key, in one PEM file."""
    key, certificate, both = (directory / f"{name}{suffix}" for suffix in (".key", ".crt", ".pem"))
    protect = ["-passout", f"pass:{password}"] if password else ["-nodes"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", subject, *protect]
    command += ["-addext", f"subjectAltName={host}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both
