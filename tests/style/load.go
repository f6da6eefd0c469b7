package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pkg is a package with its files, without tests and generated files.
type pkg struct {
	path  string
	fset  *token.FileSet
	files []*ast.File
	uses  map[*ast.Ident]types.Object
}

type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// load parses and type-checks the packages that match patterns of go list.
func load(patterns []string) ([]*pkg, error) {
	list := exec.Command("go", append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,DepOnly"}, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	var own []listed
	exports := map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("list packages: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly {
			own = append(own, p)
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var packages []*pkg
	for _, l := range own {
		p, err := check(fset, imports, l)
		if err != nil {
			return nil, err
		}
		packages = append(packages, p)
	}
	return packages, nil
}

func check(fset *token.FileSet, imports types.Importer, l listed) (*pkg, error) {
	var all []*ast.File
	p := &pkg{path: l.ImportPath, fset: fset, uses: map[*ast.Ident]types.Object{}}
	for _, name := range l.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(l.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		all = append(all, file)
		if !strings.HasPrefix(name, "zz_generated") {
			p.files = append(p.files, file)
		}
	}
	config := types.Config{Importer: imports}
	if _, err := config.Check(l.ImportPath, fset, all, &types.Info{Uses: p.uses}); err != nil {
		return nil, fmt.Errorf("check %s: %w", l.ImportPath, err)
	}
	return p, nil
}

func (p *pkg) lines() (total int) {
	for _, file := range p.files {
		total += p.fset.Position(file.End()).Line
	}
	return total
}

// functions returns the functions and methods with a body.
func (p *pkg) functions() (all []*ast.FuncDecl) {
	for _, file := range p.files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Body != nil {
				all = append(all, f)
			}
		}
	}
	return all
}
