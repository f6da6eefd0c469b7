package kea

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzDocument parses any data as the configuration of a Kea server. An accepted document loses
// nothing when a reservation is added and removed.
func FuzzDocument(f *testing.F) {
	for _, text := range []string{
		`{"subnet4":[{"id":1,"subnet":"10.0.0.0/24","reservations":[{"hw-address":"02:00:00:00:00:01","ip-address":"10.0.0.5","option-data":[{"name":"routers","data":"10.0.0.1"}],"user-context":{"vitistack.io/uid":"u"}}]}]}`,
		`{"shared-networks":[{"name":"a","subnet4":[{"id":2,"subnet":"10.1.0.0/16"}]},{}],"x":1e400}`,
		`{"subnet4":null,"shared-networks":null}`, `{"subnet4":[null]}`, `{"shared-networks":[null]}`, `{"subnet4":[{"id":-1}]}`, `[]`, `null`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) {
			return
		}
		d, err := ParseConfiguration(text)
		if err != nil {
			return
		}
		for _, s := range d.Subnets() {
			if s.Prefix != s.Prefix.Masked() {
				t.Errorf("subnet %s", s.Prefix)
			}
		}
		r := Reservation{Subnet: 1, Client: Identifier{hwAddress, "02:00:00:00:00:fe"}, Address: netip.MustParseAddr("10.0.0.254")}
		with, err := d.apply(Change{Add: []Reservation{r}}, "client-class")
		if err != nil {
			t.Fatal(err)
		}
		encoded, err := with.encode()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseConfiguration(encoded)
		if err != nil {
			t.Fatalf("%s became %s: %v", text, encoded, err)
		}
		if diff := cmp.Diff(len(d.Subnets()), len(again.Subnets())); diff != "" {
			t.Errorf("subnets of %s (-before +after):\n%s", text, diff)
		}
	})
}
