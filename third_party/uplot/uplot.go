// Package uplot carries uPlot, a small plotting library for web pages, as it
// was published. README.md says which version, and how to take a newer one.
package uplot

import _ "embed"

// Version is the release that is carried.
const Version = "1.6.32"

// Script defines the global uPlot.
//
//go:embed uPlot.iife.min.js
var Script string

// Style is the style sheet that Script needs.
//
//go:embed uPlot.min.css
var Style string
