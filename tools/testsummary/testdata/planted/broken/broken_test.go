// Package broken does not build.
package broken

var _ int = "planted build failure"
