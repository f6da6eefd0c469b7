package main

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPicture checks that a picture is one well-formed SVG without scripts, in which each line of the window has its text.
func TestPicture(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", columns) + "rest"
	r := recorder{clock: 2 * time.Second, lines: []line{{0, comment, "# <about> & more"}, {time.Second, prompt, "$ echo"}, {2 * time.Second, output, long}}}
	picture := r.picture()
	var texts []string
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for element := ""; ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch v := token.(type) {
		case xml.StartElement:
			if element = v.Name.Local; element == "script" {
				t.Error("GitHub shows no picture with a script")
			}
		case xml.CharData:
			if element == "text" && strings.TrimSpace(string(v)) != "" {
				texts = append(texts, string(v))
			}
		}
	}
	if want := []string{"# <about> & more", "$ echo", long[:columns], "rest"}; !slices.Equal(texts, want) {
		t.Errorf("the picture has the lines %q, want %q", texts, want)
	}
	if !strings.Contains(picture, "#l3{animation:l3 10.0s infinite}") {
		t.Error("the last line is not animated for the whole time")
	}
}
