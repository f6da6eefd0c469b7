// Style prints a report about the structure and the language of the code: files and circles of each package,
// methods of each type, the longest functions, and words that language rules replace. It never fails.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	most := flag.Int("most", 10, "rows of each list")
	patterns := flag.String("packages", "./apis/... ./events/... ./functions/... ./gateway/...", "packages to report on")
	flag.Parse()
	packages, err := load(strings.Fields(*patterns))
	if err != nil {
		fmt.Fprintln(os.Stderr, "style:", err)
		os.Exit(1)
	}
	printPackages(packages, *most)
	printCircles(packages)
	printMethods(packages, *most)
	printFunctions(packages, *most)
	if err := printWords(".", *most); err != nil {
		fmt.Fprintln(os.Stderr, "style:", err)
		os.Exit(1)
	}
}

// printPackages prints the packages with the most files, and the largest circle of files of each.
func printPackages(packages []*pkg, most int) {
	fmt.Println("Packages by files. An arrow leads from a file to another whose functions it calls; files of a circle reach each other.")
	fmt.Printf("%6s %6s %6s %7s %10s  %s\n", "files", "lines", "arrows", "circle", "in circles", "package")
	slices.SortFunc(packages, func(a, b *pkg) int {
		return cmp.Or(cmp.Compare(len(b.files), len(a.files)), cmp.Compare(a.path, b.path))
	})
	for _, p := range packages[:min(most, len(packages))] {
		g := p.graph()
		fmt.Printf("%6d %6d %6d %7d %10d  %s\n", len(p.files), p.lines(), g.arrows(), g.largestCircle(), g.arrowsInCircles(), p.path)
	}
}

// printCircles prints the arrows between the files of circles of more than three files, with a function of each.
func printCircles(packages []*pkg) {
	fmt.Println("\nCircles of more than three files")
	for _, p := range packages {
		g := p.graph()
		circles := g.circles()
		for _, from := range slices.Sorted(maps.Keys(g)) {
			if len(circles[from]) <= 3 {
				continue
			}
			for _, to := range slices.Sorted(maps.Keys(g[from])) {
				if circles[from][to] {
					fmt.Printf("        %s -> %s: %s\n", relative(from), filepath.Base(to), strings.Join(slices.Sorted(maps.Keys(g[from][to])), ", "))
				}
			}
		}
	}
}

// printMethods prints the types with the most methods.
func printMethods(packages []*pkg, most int) {
	type row struct {
		count int
		name  string
	}
	var rows []row
	for _, p := range packages {
		counts := map[string]int{}
		for _, f := range p.functions() {
			if f.Recv != nil {
				counts[receiver(f)]++
			}
		}
		for name, count := range counts {
			rows = append(rows, row{count, p.path + "." + name})
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.name, b.name))
	})
	fmt.Println("\nTypes by methods")
	for _, r := range rows[:min(most, len(rows))] {
		fmt.Printf("%6d  %s\n", r.count, r.name)
	}
}

func receiver(f *ast.FuncDecl) string {
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if generic, ok := t.(*ast.IndexExpr); ok {
		t = generic.X
	}
	if name, ok := t.(*ast.Ident); ok {
		return name.Name
	}
	return "?"
}

// printFunctions prints the longest functions.
func printFunctions(packages []*pkg, most int) {
	type row struct {
		lines int
		at    token.Position
		name  string
	}
	var rows []row
	for _, p := range packages {
		for _, f := range p.functions() {
			at := p.fset.Position(f.Pos())
			rows = append(rows, row{p.fset.Position(f.End()).Line - at.Line + 1, at, f.Name.Name})
		}
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.lines, a.lines), cmp.Compare(a.name, b.name))
	})
	fmt.Println("\nFunctions by lines")
	for _, r := range rows[:min(most, len(rows))] {
		fmt.Printf("%6d  %s:%d %s\n", r.lines, relative(r.at.Filename), r.at.Line, r.name)
	}
}

func relative(path string) string {
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	if short, err := filepath.Rel(dir, path); err == nil {
		return short
	}
	return path
}
