package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// table is a result of rows. On a terminal it is aligned, elsewhere it is TSV with a header line, so that scripts can read it.
type table struct {
	header []string
	rows   [][]string
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

func (t *table) print(w io.Writer, terminal bool) error {
	if !terminal {
		for _, row := range append([][]string{t.header}, t.rows...) {
			for i := range row {
				row[i] = oneLine(row[i])
			}
			if _, err := fmt.Fprintln(w, strings.Join(row, "\t")); err != nil {
				return err
			}
		}
		return nil
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, strings.ToUpper(strings.Join(t.header, "\t")))
	for _, row := range t.rows {
		for i := range row {
			row[i] = printable(oneLine(row[i]))
		}
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

// oneLine keeps a cell in its cell.
func oneLine(s string) string { return strings.NewReplacer("\t", " ", "\n", " ", "\r", " ").Replace(s) }

// printable keeps control characters of file names and texts away from the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '\uFFFD'
		}
		return r
	}, s)
}

// displayName is a file's name as it may be shown and sent: valid UTF-8 without control characters, in one line.
func displayName(name string) string { return printable(oneLine(strings.ToValidUTF8(name, "\uFFFD"))) }

// printJSON writes v indented, with a newline.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// result prints v as JSON when --json asks for it, otherwise the table.
func (a *app) result(v any, t *table) error {
	if a.json {
		return printJSON(a.Out, v)
	}
	return t.print(a.Out, a.Terminal(a.Out))
}
