// Package changes changes every field of every spec on an object that is Ready, and compares what the
// backends have afterwards with a table, which docs/changes.md shows.
package changes

//go:generate go test . -count=1 -run TestPageIsCurrent -update
