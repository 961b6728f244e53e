#!/bin/sh
# Software: cryptography 46.0.3 of Python (x509.verification), and Go 1.26's crypto/x509.
# Guess, written before the run: both verify a chain whose keys are all Ed25519.
# Behaviour: Go verifies it. Python's verifier refuses the authority's key. Below an authority with
#   an RSA key, it takes an Ed25519 key of the server.
# Seen on 2026-11-29: the lines below.
# Needs Go 1.26 or later, Python 3.11 or later and PyPI. Ends with 1 if it is another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
python3 -m venv venv && venv/bin/pip install -q --disable-pip-version-check cryptography==46.0.3
cat >main.go <<'GO'
package main

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"os"
	"time"
)

func main() {
	public, edwards, _ := ed25519.GenerateKey(nil)
	factors, _ := rsa.GenerateKey(nil, 2048)
	for name, key := range map[string]crypto.Signer{"Ed25519": edwards, "RSA": factors} {
		root := x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
		leaf := root
		leaf.Subject.CommonName, leaf.DNSNames = "leaf", []string{"a.example"}
		root.IsCA, root.BasicConstraintsValid, root.KeyUsage = true, true, x509.KeyUsageCertSign
		rootDER, _ := x509.CreateCertificate(nil, &root, &root, key.Public(), key)
		authority, _ := x509.ParseCertificate(rootDER)
		leafDER, _ := x509.CreateCertificate(nil, &leaf, authority, public, key)
		server, _ := x509.ParseCertificate(leafDER)
		os.WriteFile(name+"1", rootDER, 0o600)
		os.WriteFile(name+"2", leafDER, 0o600)
		pool := x509.NewCertPool()
		pool.AddCert(authority)
		_, err := server.Verify(x509.VerifyOptions{Roots: pool, DNSName: "a.example"})
		fmt.Println("Go: authority", name, err)
	}
}
GO
cat >main.py <<'PYTHON'
from cryptography.x509 import DNSName, load_der_x509_certificate
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError
for name in ("Ed25519", "RSA"):
    root, leaf = (load_der_x509_certificate(open(name + part, "rb").read()) for part in "12")
    verifier = PolicyBuilder().store(Store([root])).build_server_verifier(DNSName("a.example"))
    try:
        verifier.verify(leaf, [])
        print("Python: authority", name, "verified")
    except VerificationError as error:
        print("Python: authority", name, *str(error).split()[4:8])
PYTHON
go mod init finding >/dev/null 2>&1
{ go run . | sort && venv/bin/python main.py; } | tee seen
diff seen - <<'END'
Go: authority Ed25519 <nil>
Go: authority RSA <nil>
Python: authority Ed25519 Forbidden public key algorithm:
Python: authority RSA verified
END
