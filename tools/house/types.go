package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"path"
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

// object is a struct type: its fields, its methods with the functions of its package that take it
// first, and the types that it embeds.
type object struct {
	fields, methods int
	embedded        []string
}

// objects are struct types by package and name, "internal/agent/loop.Agent".
type objects map[string]*object

// printLarge lists the hand-written struct types above the limits, wire types, the laboratory
// and the OpenFlow messages aside.
func printLarge(w io.Writer, root string) error {
	all := objects{}
	for _, top := range []string{"api", "internal", "test", "tools"} {
		if err := all.read(root, top); err != nil {
			return fmt.Errorf("read types: %w", err)
		}
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, "api/") || strings.HasPrefix(name, "internal/lab/") || strings.HasPrefix(name, "internal/sdn/openflow.") {
			continue
		}
		if fields, methods := all.total(name); fields > maxFields || methods > maxMethods {
			lines = append(lines, fmt.Sprintf("  %s %d/%d\n", name, fields, methods))
		}
	}
	_, err := fmt.Fprintf(w, "types above %d fields or %d methods: %d\n%s", maxFields, maxMethods, len(lines), strings.Join(lines, ""))
	return err
}

// total returns a type's fields and methods with those of the types of this repository it embeds.
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

// read adds the struct types of the packages below a folder of root, without tests and what is
// generated.
func (o objects) read(root, top string) error {
	structs := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(root, top), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil || ast.IsGenerated(file) {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		o.readFile(file, scope(file, dir), structs)
		return err
	})
	maps.DeleteFunc(o, func(name string, _ *object) bool { return strings.HasPrefix(name, top+"/") && !structs[name] })
	return err
}

func (o objects) readFile(file *ast.File, packages map[string]string, structs map[string]bool) {
	at := func(name string) *object {
		if o[name] == nil {
			o[name] = &object{}
		}
		return o[name]
	}
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			list := decl.Type.Params
			if decl.Recv != nil {
				list = decl.Recv
			}
			if len(list.List) == 0 {
				continue
			}
			if name := typeName(list.List[0].Type, packages); strings.HasPrefix(name, packages[""]+".") {
				at(name).methods++
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					if body, ok := spec.Type.(*ast.StructType); ok {
						name := typeName(spec.Name, packages)
						structs[name] = true
						at(name).readFields(body, packages)
					}
				}
			}
		}
	}
}

func (o *object) readFields(body *ast.StructType, packages map[string]string) {
	for _, field := range body.Fields.List {
		if len(field.Names) == 0 {
			o.embedded = append(o.embedded, typeName(field.Type, packages))
		}
		o.fields += max(len(field.Names), 1)
	}
}

// scope returns the packages that a file in the folder dir names, by name; its own is "".
func scope(file *ast.File, dir string) map[string]string {
	packages := map[string]string{"": filepath.ToSlash(dir)}
	for _, i := range file.Imports {
		where := strings.TrimPrefix(strings.Trim(i.Path.Value, `"`), module)
		name := path.Base(where)
		if i.Name != nil {
			name = i.Name.Name
		}
		packages[name] = where
	}
	return packages
}

// typeName returns the package and name of a type, or of what a pointer to it points to; "" for a
// type without a name.
func typeName(e ast.Expr, packages map[string]string) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X, packages)
	case *ast.IndexExpr:
		return typeName(e.X, packages)
	case *ast.SelectorExpr:
		if x, ok := e.X.(*ast.Ident); ok {
			return packages[x.Name] + "." + e.Sel.Name
		}
	case *ast.Ident:
		return packages[""] + "." + e.Name
	}
	return ""
}
