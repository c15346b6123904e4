package policy

import "strings"

// Nearest returns the known name that was probably meant by a misspelt one: at
// most two edits (and less than half its length) away in any case, the first of
// the nearest.
func Nearest(name string, known []string) (string, bool) {
	best, bestDistance := "", 3
	for _, k := range known {
		if d := editDistance(strings.ToLower(name), k); d < bestDistance && 2*d < len(k) {
			best, bestDistance = k, d
		}
	}
	return best, best != ""
}

// editDistance is the number of characters to insert, delete or replace, or of
// neighbours to swap, to make b of a (optimal string alignment).
func editDistance(a, b string) int {
	x, y := []rune(a), []rune(b)
	before, last, row := make([]int, len(y)+1), make([]int, len(y)+1), make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i := range x {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range y {
			replace := last[j]
			if x[i] != y[j] {
				replace++
			}
			row[j+1] = min(replace, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && x[i] == y[j-1] && x[i-1] == y[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(y)]
}
