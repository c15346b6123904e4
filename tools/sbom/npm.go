package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// npmPackages are packages of a package-lock.json by their names.
func npmPackages(lock string, names []string) ([]cdx.Component, error) {
	data, err := os.ReadFile(lock)
	if err != nil {
		return nil, err
	}
	var locked struct {
		Packages map[string]struct{ Version, License, Integrity string }
	}
	if err := json.Unmarshal(data, &locked); err != nil {
		return nil, fmt.Errorf("read %s: %w", lock, err)
	}
	var parts []cdx.Component
	for _, name := range names {
		found, is := locked.Packages["node_modules/"+name]
		if !is {
			return nil, fmt.Errorf("%s has no package %q", lock, name)
		}
		part := library("npm", name, found.Version)
		part.Licenses = &cdx.Licenses{{License: &cdx.License{ID: found.License}}}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(found.Integrity, "sha512-"))
		if err != nil || len(raw) != 64 {
			return nil, fmt.Errorf("%s has no SHA-512 of %s but %q", lock, name, found.Integrity)
		}
		part.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA512, Value: hex.EncodeToString(raw)}}
		parts = append(parts, part)
	}
	return parts, nil
}
