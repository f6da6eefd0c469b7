package main

import (
	"go/ast"
	"go/types"
)

// graph has an arrow from each file to the files whose functions and methods it calls, with their names.
type graph map[string]map[string]map[string]bool

func (p *pkg) graph() graph {
	g := graph{}
	for _, file := range p.files {
		from := p.fset.Position(file.Pos()).Filename
		g[from] = map[string]map[string]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			name, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			called, ok := p.uses[name].(*types.Func)
			if !ok || called.Pkg() == nil || called.Pkg().Path() != p.path {
				return true
			}
			if to := p.fset.Position(called.Pos()).Filename; to != from {
				if g[from][to] == nil {
					g[from][to] = map[string]bool{}
				}
				g[from][to][called.Name()] = true
			}
			return true
		})
	}
	return g
}

func (g graph) arrows() (total int) {
	for _, to := range g {
		total += len(to)
	}
	return total
}

// circles returns for each file the files that it reaches and that reach it, itself among them.
func (g graph) circles() map[string]map[string]bool {
	reached := map[string]map[string]bool{}
	for from := range g {
		reached[from] = map[string]bool{}
		g.visit(from, reached[from])
	}
	circles := map[string]map[string]bool{}
	for from := range g {
		circles[from] = map[string]bool{from: true}
		for to := range reached[from] {
			if reached[to][from] {
				circles[from][to] = true
			}
		}
	}
	return circles
}

func (g graph) visit(from string, seen map[string]bool) {
	for to := range g[from] {
		if !seen[to] {
			seen[to] = true
			g.visit(to, seen)
		}
	}
}

// largestCircle returns the number of files of the largest circle, and 0 if there is none.
func (g graph) largestCircle() (largest int) {
	for _, files := range g.circles() {
		if len(files) > 1 {
			largest = max(largest, len(files))
		}
	}
	return largest
}

// arrowsInCircles returns the number of arrows between files of the same circle.
func (g graph) arrowsInCircles() (total int) {
	circles := g.circles()
	for from, targets := range g {
		for to := range targets {
			if circles[from][to] {
				total++
			}
		}
	}
	return total
}
