package inventory

import (
	"bytes"
	"encoding/json"
	"io"
)

// TextIn reports whether a value in a JSON document contains text, which has to be in lower case. The names of fields are not searched.
func TextIn(document []byte, text string) bool {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	return textIn(decoder, text)
}

// textIn searches the tokens of a document. inObject has an entry for each open object and list: whether it is an object.
func textIn(decoder *json.Decoder, text string) bool {
	var inObject []bool
	isName := false
	for {
		token, err := decoder.Token()
		if err == io.EOF || err != nil {
			return false
		}
		switch t := token.(type) {
		case json.Delim:
			switch t {
			case '{', '[':
				inObject = append(inObject, t == '{')
			default:
				inObject = inObject[:len(inObject)-1]
			}
			isName = len(inObject) > 0 && inObject[len(inObject)-1]
			continue
		case string:
			if !isName && contains(t, text) {
				return true
			}
		case json.Number:
			if contains(t.String(), text) {
				return true
			}
		}
		isName = len(inObject) > 0 && inObject[len(inObject)-1] && !isName
	}
}
