// Package engine decides where instances of services run (PiCasso's orchestration
// engine).
package engine
