// Floor is the minimum of a function: an empty HTTP server. Cold starts are given as multiples of its
// own.
package main

import (
	"net/http"
	"os"
	"time"
)

func main() {
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	server := &http.Server{Addr: ":" + os.Getenv("PORT"), Handler: handler, ReadHeaderTimeout: time.Second}
	_ = server.ListenAndServe()
}
