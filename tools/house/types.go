package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A type above one of these is a package in disguise, and so is a package of functions that all
// take it first.
const (
	maxFields  = 20
	maxMethods = 40
)

// object is a struct type: its fields, and its methods with the functions that take it first.
type object struct {
	fields, methods int
	embedded        []string
}

// printLarge lists the hand-written struct types above the limits, wire types, the laboratory
// and the OpenFlow messages aside.
func printLarge(w io.Writer, root string) error {
	var lines []string
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(dir string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		path, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		if path == "internal/lab" || path == "internal/sdn/openflow" {
			return filepath.SkipDir
		}
		objects, err := readObjects(dir)
		for _, name := range slices.Sorted(maps.Keys(objects)) {
			if fields, methods := objects.total(name); fields > maxFields || methods > maxMethods {
				lines = append(lines, fmt.Sprintf("  %s.%s %d/%d\n", path, name, fields, methods))
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read types: %w", err)
	}
	_, err = fmt.Fprintf(w, "types above %d fields or %d methods: %d\n%s", maxFields, maxMethods, len(lines), strings.Join(lines, ""))
	return err
}

type objects map[string]*object

// total returns a type's fields and methods with those of the types of its package it embeds.
func (o objects) total(name string) (fields, methods int) {
	one := o[name]
	fields, methods = one.fields, one.methods
	for _, embedded := range one.embedded {
		if o[embedded] != nil {
			f, m := o.total(embedded)
			fields, methods = fields+f, methods+m
		}
	}
	return fields, methods
}

// readObjects reads the struct types of the package in a folder, without tests and what is
// generated.
func readObjects(dir string) (objects, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	found := objects{}
	at := func(name string) *object {
		if found[name] == nil {
			found[name] = &object{}
		}
		return found[name]
	}
	structs := map[string]bool{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(path, "_test.go") || ast.IsGenerated(file) {
			continue
		}
		for _, decl := range file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				list := decl.Type.Params
				if decl.Recv != nil {
					list = decl.Recv
				}
				if len(list.List) > 0 {
					at(typeName(list.List[0].Type)).methods++
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						if body, ok := spec.Type.(*ast.StructType); ok {
							structs[spec.Name.Name] = true
							at(spec.Name.Name).read(body)
						}
					}
				}
			}
		}
	}
	maps.DeleteFunc(found, func(name string, _ *object) bool { return !structs[name] })
	return found, nil
}

func (o *object) read(body *ast.StructType) {
	for _, field := range body.Fields.List {
		if len(field.Names) == 0 {
			o.embedded = append(o.embedded, typeName(field.Type))
		}
		o.fields += max(len(field.Names), 1)
	}
}

// typeName returns the name of a type of this package, or of what a pointer to it points to.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "" // of another package, or without a name
}
