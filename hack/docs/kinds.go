package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/hitless/hitless/record"
)

// kindTable has the kinds of events with their structs, as the comments of record/bodies.go explain them.
func kindTable(top string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(top, "record/bodies.go"), nil, parser.ParseComments)
	if err != nil {
		return "", fmt.Errorf("reading the kinds of events: %w", err)
	}
	structs := structsOf(file)
	var b strings.Builder
	b.WriteString("| kind | struct | meaning |\n|---|---|---|\n")
	for _, kind := range record.Kinds() {
		s, known := structs[string(kind)]
		if !known || s.meaning == "" {
			return "", fmt.Errorf("record/bodies.go has no struct with a comment for the kind %q", kind)
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", kind, s.name, s.meaning)
	}
	return b.String(), nil
}

// bodyStruct is a struct of record/bodies.go with the first sentence of its comment, without the struct's name.
type bodyStruct struct{ name, meaning string }

// structsOf maps each kind to its struct. The constant Kind… has the kind, and the method Kind of the struct returns the constant.
func structsOf(file *ast.File) map[string]bodyStruct {
	kinds, structs, all := map[string]string{}, map[string]bodyStruct{}, map[string]bodyStruct{}
	for _, d := range file.Decls {
		g, is := d.(*ast.GenDecl)
		if !is {
			continue
		}
		for _, spec := range g.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				if value, is := spec.Values[0].(*ast.BasicLit); is {
					kinds[spec.Names[0].Name], _ = strconv.Unquote(value.Value)
				}
			case *ast.TypeSpec:
				name := spec.Name.Name
				sentence, _, _ := strings.Cut(strings.Join(strings.Fields(g.Doc.Text()), " ")+" ", ". ")
				structs[name] = bodyStruct{name, strings.TrimSuffix(withoutVerb(strings.TrimPrefix(strings.TrimSpace(sentence), name+" ")), ".")}
			}
		}
	}
	for _, d := range file.Decls {
		f, is := d.(*ast.FuncDecl)
		if !is || f.Recv == nil || f.Name.Name != "Kind" {
			continue
		}
		receiver, _ := f.Recv.List[0].Type.(*ast.Ident)
		result, isReturn := f.Body.List[0].(*ast.ReturnStmt)
		if receiver == nil || !isReturn {
			continue
		}
		if constant, is := result.Results[0].(*ast.Ident); is {
			all[kinds[constant.Name]] = structs[receiver.Name]
		}
	}
	return all
}

// withoutVerb is the rest of a comment that begins with "is" or "are".
func withoutVerb(text string) string {
	return strings.TrimPrefix(strings.TrimPrefix(text, "is "), "are ")
}
