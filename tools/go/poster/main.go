// Posts bodies of spaces with Go's HTTP client, and prints the status and the text of each answer.
//
// poster CA URL CONTENT_TYPE BYTES COUNT length|chunks
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
)

// spaces is a reader without end.
type spaces struct{}

func (spaces) Read(into []byte) (int, error) {
	for i := range into {
		into[i] = ' '
	}
	return len(into), nil
}

func main() {
	ca, url, contentType := os.Args[1], os.Args[2], os.Args[3]
	length, count := number(os.Args[4]), number(os.Args[5])
	pem, err := os.ReadFile(ca)
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	for range count {
		request, err := http.NewRequest(http.MethodPost, url, io.LimitReader(spaces{}, length))
		check(err)
		request.Header.Set("Content-Type", contentType)
		if os.Args[6] == "length" {
			request.ContentLength = length
		}
		fmt.Println(send(client, request))
	}
}

func send(client *http.Client, request *http.Request) string {
	answer, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %q", answer.StatusCode, text)
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
