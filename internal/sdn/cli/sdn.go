package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/weir-project/weir/internal/front/cmdline"
	"github.com/weir-project/weir/internal/sdn/openflow"
)

func newSDNDecodeCommand() *cobra.Command {
	var numbers bool
	cmd := &cobra.Command{
		Use:   "decode FILE",
		Short: "Print the OpenFlow 1.3 messages of a file as JSON",
		Long: `Print the OpenFlow 1.3 messages of a file, one after the other as on a
connection, as JSON, one a line, with the names of the specification. - is
standard input.

Packets, the data of errors and what experimenters define (Nicira's actions and match
fields among them) are base64. The command ends with exit code 1 at the first message
that is cut off, of another version or wrong, and names the wrong byte.`,
		Example: "weir sdn decode messages.bin\nweir sdn decode --numbers - <messages.bin",
		Args:    cmdline.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in := cmd.InOrStdin()
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("read messages: %w", err)
				}
				defer file.Close()
				in = file
			}
			count, err := decodeOpenFlow(in, cmd.OutOrStdout(), numbers)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if count == 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s is empty: there is no message in it\n", cmdline.Printable(args[0]))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&numbers, "numbers", false, "print values as numbers, not by the specification's names")
	return cmd
}

// decodeOpenFlow prints messages up to the first wrong one, and returns their number.
func decodeOpenFlow(stream io.Reader, to io.Writer, numbers bool) (count int, err error) {
	in, out := bufio.NewReaderSize(stream, 1<<16), bufio.NewWriter(to)
	r := openflow.NewReader(in)
	for n := 1; ; n++ {
		if in.Buffered() == 0 { // flush before a wait for the next message
			if err := out.Flush(); err != nil {
				return n - 1, fmt.Errorf("write messages: %w", err)
			}
		}
		b, err := r.Next()
		var m openflow.Message
		if err == nil {
			m, err = openflow.Parse(b)
		}
		if err != nil {
			if writeErr := out.Flush(); writeErr != nil {
				return n - 1, fmt.Errorf("write messages: %w", writeErr)
			}
			return n - 1, messageError(n, r.Offset(), err)
		}
		_, _ = out.Write(append(openflow.Format(m, numbers), '\n')) // Flush has the error
	}
}

// messageError prefixes an error with the file offset and the number of the message. It
// returns nil for io.EOF.
func messageError(n int, begins int64, err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	var bad *openflow.Error
	if !errors.As(err, &bad) {
		return err
	}
	return fmt.Errorf("byte %d (message %d begins at byte %d): %s: %w", begins+int64(bad.Offset), n, begins, bad.What, bad.Err)
}
