// Command tiny stands for the program in the tests of the image.
package main

import "fmt"

func main() { fmt.Println("tiny") }
