#!/bin/sh
# Software: cryptography 50.0.2 of Python (x509.verification), and Go 1.26's crypto/x509, by which
#   the API server verifies client certificates.
# Guess, written before the run: build_client_verifier() takes each certificate that Go verifies for
#   client authentication, as that of kubeadm: the user is the common name, the groups are
#   organizations, and there is no subject alternative name.
# Behaviour: it refuses a certificate without a subject alternative name. With one, it takes the
#   certificate, and returns that name as the subject.
# Seen on 2026-12-01: the lines below.
# Needs Go 1.26 or later, Python 3.11 or later, openssl 3 and PyPI. Ends with 1 if the behaviour is
#   another one.
set -eu
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cd "$directory"
python3 -m venv venv
venv/bin/pip install -q --disable-pip-version-check cryptography==50.0.2
openssl req -x509 -newkey rsa:2048 -noenc -keyout authority.key -out authority -subj /CN=kubernetes \
	-addext keyUsage=critical,keyCertSign 2>/dev/null
for name in none one; do
	printf 'extendedKeyUsage=clientAuth\nauthorityKeyIdentifier=keyid\n' >extensions
	[ "$name" = none ] || echo subjectAltName=DNS:admin.example >>extensions
	openssl req -newkey rsa:2048 -noenc -keyout key -subj /O=admins/CN=admin 2>/dev/null |
		openssl x509 -req -CA authority -CAkey authority.key -extfile extensions -outform DER -out "$name" 2>/dev/null
done
cat >main.go <<'GO'
package main

import (
	"crypto/x509"
	"fmt"
	"os"
)

func main() {
	roots, purposes := x509.NewCertPool(), []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	text, _ := os.ReadFile("authority")
	roots.AppendCertsFromPEM(text)
	for _, name := range []string{"none", "one"} {
		der, _ := os.ReadFile(name)
		leaf, _ := x509.ParseCertificate(der)
		_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: purposes})
		fmt.Println(name, "Go:", err)
	}
}
GO
cat >main.py <<'PYTHON'
from pathlib import Path

from cryptography.x509 import load_der_x509_certificate, load_pem_x509_certificate
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

authority = load_pem_x509_certificate(Path("authority").read_bytes())
verifier = PolicyBuilder().store(Store([authority])).build_client_verifier()
for name in "none", "one":
    leaf = load_der_x509_certificate(Path(name).read_bytes())
    try:
        print(name, "Python:", [subject.value for subject in verifier.verify(leaf, []).subjects])
    except VerificationError as error:
        print(name, "Python:", str(error).partition(" (")[0])
PYTHON
(go run main.go; venv/bin/python main.py) >seen
cat seen
diff seen - <<'END'
none Go: <nil>
one Go: <nil>
none Python: validation failed: invalid extension: 2.5.29.17: Certificate is missing required extension
one Python: ['admin.example']
END
