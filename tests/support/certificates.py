"""Certificates for tests, made by openssl, and Java's stores with them, made by keytool."""

import subprocess
from pathlib import Path

__all__ = [
    "STORE_PASSWORD",
    "make_authority",
    "make_certificate",
    "make_key_store",
    "make_signed_certificate",
    "make_trust_store",
]

STORE_PASSWORD = "changeit"


def make_certificate(
    directory: Path, name: str, subject: str, *, password: str = "", bits: int = 2048, host: str = "IP:127.0.0.1"
) -> Path:
    """A self-signed certificate for a host, 127.0.0.1 if no other is given, with its
    key, in one PEM file."""
    key, certificate, both = (directory / f"{name}{suffix}" for suffix in (".key", ".crt", ".pem"))
    protect = ["-passout", f"pass:{password}"] if password else ["-nodes"]
    command = ["openssl", "req", "-x509", "-newkey", f"rsa:{bits}", "-days", "2", "-subj", subject, *protect]
    command += ["-addext", f"subjectAltName={host}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


def make_authority(directory: Path) -> Path:
    """An authority's certificate with its key, in one PEM file."""
    return make_certificate(directory, "authority", "/CN=authority")


def make_signed_certificate(directory: Path, name: str) -> Path:
    """A certificate that the directory's authority has signed, with its key, in one PEM file."""
    key, request, certificate, both = (directory / f"{name}{suffix}" for suffix in (".key", ".csr", ".crt", ".pem"))
    command = ["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", str(key)]
    subprocess.run([*command, "-out", str(request)], check=True, capture_output=True)
    authority = ["-CA", str(directory / "authority.crt"), "-CAkey", str(directory / "authority.key"), "-CAcreateserial"]
    command = ["openssl", "x509", "-req", "-in", str(request), *authority, "-days", "2", "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both


def make_key_store(pem: Path, kind: str, *, key_password: str = STORE_PASSWORD) -> Path:
    """A store of Java's, JKS or PKCS12, with the key and the certificate in a PEM
    file that is not encrypted."""
    pkcs12, store = pem.with_suffix(".openssl.p12"), pem.with_suffix(f".{kind.lower()}")
    command = ["openssl", "pkcs12", "-export", "-in", str(pem), "-name", "own", "-passout", f"pass:{STORE_PASSWORD}"]
    subprocess.run([*command, "-out", str(pkcs12)], check=True, capture_output=True)
    source = ["-srckeystore", str(pkcs12), "-srcstorepass", STORE_PASSWORD, "-srcalias", "own"]
    keys = ["-destkeypass", key_password] if kind == "JKS" else []
    _keytool("-importkeystore", *source, *keys, "-destkeystore", str(store), "-deststoretype", kind)
    return store


def make_trust_store(certificate: Path, kind: str) -> Path:
    """A store of Java's, JKS or PKCS12, that trusts the certificate in a PEM file."""
    store = certificate.with_suffix(f".trust.{kind.lower()}")
    given = ["-noprompt", "-alias", "trusted", "-file", str(certificate)]
    _keytool("-importcert", *given, "-keystore", str(store), "-storetype", kind)
    return store


def _keytool(*arguments: str) -> None:
    password = "-deststorepass" if "-importkeystore" in arguments else "-storepass"
    subprocess.run(["keytool", *arguments, password, STORE_PASSWORD], check=True, capture_output=True)
