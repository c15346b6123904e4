// Command sbom lists the parts of a program: a software bill of materials in CycloneDX
// 1.6, from what the compiler wrote into the program.
//
//	sbom -name weir -version 1.2.3 [-npm LOCK -bundled PACKAGE,...] PROGRAM >weir.cdx.json
//
// LOCK is npm's package-lock.json, of which the named packages are part of the program.
// The same program makes the same bytes: there is no serial number, and the time is that
// of SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/source-date-epoch/).
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	name := flags.String("name", "", "the program's name")
	version := flags.String("version", "", "its version")
	lock := flags.String("npm", "", "package-lock.json")
	bundled := flags.String("bundled", "", "packages of that which the program has in it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *name == "" || *version == "" || flags.NArg() != 1 {
		return errors.New("usage: sbom -name NAME -version VERSION PROGRAM")
	}
	epoch, err := strconv.ParseInt(cmp.Or(os.Getenv("SOURCE_DATE_EPOCH"), "0"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	info, err := buildinfo.ReadFile(flags.Arg(0))
	if err != nil {
		return fmt.Errorf("read what the compiler wrote into %s: %w", flags.Arg(0), err)
	}
	var scripts []cdx.Component
	if *lock != "" {
		if scripts, err = npmPackages(*lock, strings.Split(*bundled, ",")); err != nil {
			return err
		}
	}
	bom, err := describe(info, scripts, *name, *version, time.Unix(epoch, 0))
	if err != nil {
		return err
	}
	return cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// describe is the bill of a program built at a time, with parts that its compiler does not
// know of.
func describe(info *debug.BuildInfo, others []cdx.Component, name, version string, built time.Time) (*cdx.BOM, error) {
	bom := cdx.NewBOM()
	root := cdx.Component{
		BOMRef: "pkg:golang/" + info.Main.Path + "@" + version, Type: cdx.ComponentTypeApplication,
		Name: name, Version: version, PackageURL: "pkg:golang/" + info.Main.Path + "@" + version,
		Licenses: &cdx.Licenses{{Expression: "Apache-2.0 AND GPL-2.0-only"}},
	}
	bom.Metadata = &cdx.Metadata{
		Timestamp: built.UTC().Format(time.RFC3339), Component: &root,
		Properties: &[]cdx.Property{{Name: "go:version", Value: info.GoVersion}, {Name: "go:target", Value: target(info)}},
	}
	parts := []cdx.Component{library("golang", "std", strings.TrimPrefix(info.GoVersion, "go"))}
	parts = append(parts, others...)
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		part := library("golang", module.Path, module.Version)
		if module.Sum != "" {
			hash, err := sha256(module.Sum)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", module.Path, err)
			}
			// Of the module's files as go.sum has it ("h1:"), not of an archive.
			part.Properties = &[]cdx.Property{{Name: "go:sum", Value: module.Sum}, {Name: "go:sum:sha256", Value: hash}}
		}
		parts = append(parts, part)
	}
	slices.SortFunc(parts, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	var refs []string
	for _, part := range parts {
		refs = append(refs, part.BOMRef)
	}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: root.BOMRef, Dependencies: &refs}}
	return bom, nil
}

// library is a part by its package URL (https://github.com/package-url/purl-spec).
func library(kind, path, version string) cdx.Component {
	url := "pkg:" + kind + "/" + path + "@" + version
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
}

// target is what the program was compiled for, such as linux/arm64.
func target(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	return settings["GOOS"] + "/" + settings["GOARCH"]
}

// sha256 is a hash of go.sum in hexadecimal digits.
func sha256(sum string) (string, error) {
	encoded, found := strings.CutPrefix(sum, "h1:")
	if !found {
		return "", fmt.Errorf("%q is no hash of go.sum", sum)
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return "", fmt.Errorf("the hash %q: %w", sum, err)
	}
	return hex.EncodeToString(raw), nil
}
