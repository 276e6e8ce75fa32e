// Package wer measures how far a transcript is from its reference: the word
// error rate, in percent, by the alignment with the fewest errors.
//
// It compares words. What a word is, [Words] decides for English; for another
// language or another rule callers split texts themselves. It knows nothing of
// audio, models or files.
package wer

import "slices"

// Counts are the errors of one or several transcripts.
type Counts struct {
	Words         int // of the reference
	Substitutions int // words that became another
	Deletions     int // words of the reference that are missing
	Insertions    int // words that are not in the reference
}

// Errors is the number of all errors.
func (c Counts) Errors() int { return c.Substitutions + c.Deletions + c.Insertions }

// Percent is the word error rate: 100 times the errors by the words of the
// reference. It can exceed 100. An empty reference counts as one word, so that
// it is 0 without insertions, above 0 with any, and always finite.
func (c Counts) Percent() float64 { return 100 * float64(c.Errors()) / float64(max(c.Words, 1)) }

// Add adds the counts of another transcript. The rate of a corpus is that of
// the sum, not the mean of the rates.
func (c *Counts) Add(other Counts) {
	c.Words += other.Words
	c.Substitutions += other.Substitutions
	c.Deletions += other.Deletions
	c.Insertions += other.Insertions
}

// Texts compares two English texts by their Words.
func Texts(reference, hypothesis string) Counts {
	return Compare(Words(reference), Words(hypothesis))
}

// Compare counts the errors of the alignment that Align gives, in memory
// proportional to the length of hypothesis.
func Compare(reference, hypothesis []string) Counts {
	row := make([]Counts, len(hypothesis)+1) // of the reference so far, against each prefix of hypothesis
	for j := range row {
		row[j].Insertions = j
	}
	for _, word := range reference {
		diagonal := row[0]
		row[0].Deletions++
		for j, heard := range hypothesis {
			next, above, left := row[j+1], row[j+1], row[j]
			best := diagonal
			if word != heard {
				best.Substitutions++
			}
			above.Deletions++
			left.Insertions++
			best = better(better(best, above), left)
			diagonal, row[j+1] = next, best
		}
	}
	total := row[len(hypothesis)]
	total.Words = len(reference)
	return total
}

// better prefers a, unless b has fewer errors, or as many with more words right.
func better(a, b Counts) Counts {
	if b.Errors() < a.Errors() || b.Errors() == a.Errors() && b.Substitutions < a.Substitutions {
		return b
	}
	return a
}

// Op is what became of a word.
type Op uint8

// The operations of an alignment.
const (
	Match Op = iota
	Substitution
	Deletion
	Insertion
)

// Step is one word of an alignment.
type Step struct {
	Op         Op
	Reference  string // "" for an insertion
	Hypothesis string // "" for a deletion
}

// Align gives an alignment with the fewest errors (Levenshtein, Soviet Physics
// Doklady 10, 1966), in the order of the texts; of several, one with the most
// words right. It needs a byte for each pair of words, about 100 MB for an
// hour's transcripts; Compare does not.
func Align(reference, hypothesis []string) []Step {
	n, m := len(reference), len(hypothesis)
	ops := make([]Op, (n+1)*(m+1)) // the last step to each pair of prefixes
	// An error costs more than all substitutions together, so that their number
	// decides only among alignments with the same number of errors.
	cost := n + m + 1
	row := make([]int, m+1)
	for j := 1; j <= m; j++ {
		row[j], ops[j] = j*cost, Insertion
	}
	for i, word := range reference {
		diagonal := row[0]
		row[0] = (i + 1) * cost
		line := ops[(i+1)*(m+1):]
		line[0] = Deletion
		for j, heard := range hypothesis {
			best, op := diagonal, Match
			if word != heard {
				best, op = diagonal+cost+1, Substitution
			}
			if row[j+1]+cost < best {
				best, op = row[j+1]+cost, Deletion
			}
			if row[j]+cost < best {
				best, op = row[j]+cost, Insertion
			}
			diagonal, row[j+1], line[j+1] = row[j+1], best, op
		}
	}
	return backtrace(ops, reference, hypothesis)
}

// backtrace follows the steps from the end of both texts to their start.
func backtrace(ops []Op, reference, hypothesis []string) []Step {
	i, j := len(reference), len(hypothesis)
	steps := make([]Step, 0, max(i, j))
	for width := j + 1; i > 0 || j > 0; {
		s := Step{Op: ops[i*width+j]}
		if s.Op != Insertion {
			i--
			s.Reference = reference[i]
		}
		if s.Op != Deletion {
			j--
			s.Hypothesis = hypothesis[j]
		}
		steps = append(steps, s)
	}
	slices.Reverse(steps)
	return steps
}
