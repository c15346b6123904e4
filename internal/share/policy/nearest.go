package policy

import "strings"

// Nearest returns the known name closest to a misspelt one, ignoring case: at most two
// edits away and fewer than half the name's length. Among equally close names the first
// wins.
func Nearest(name string, known []string) (string, bool) {
	best, bestDistance := "", 3
	for _, k := range known {
		if d := editDistance(strings.ToLower(name), k); d < bestDistance && 2*d < len(k) {
			best, bestDistance = k, d
		}
	}
	return best, best != ""
}

// editDistance returns the number of insertions, deletions, replacements and swaps of
// neighbouring characters that turn a into b (optimal string alignment).
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
