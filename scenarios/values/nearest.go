package values

// Nearest returns the word with the fewest changed letters; empty if none is near, within a third of the letters.
func Nearest(text string, all []string) string {
	best, least := "", max(2, len(text)/3)+1
	for _, word := range all {
		if d := distance(text, word); d < least {
			best, least = word, d
		}
	}
	return best
}

// distance is the number of letters to insert, remove or replace (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
