# SPDX-License-Identifier: BSD-3-Clause
# Draw gpucoll-sim's rows: times over ranks, with the bound, a picture for each collective and size.
#
#     gnuplot -c gpucoll-sim.gp ROWS.csv >PICTURE.svg

if (ARGC != 1) { print "usage: gnuplot -c gpucoll-sim.gp ROWS.csv >PICTURE.svg"; exit status 2 }

# What stands behind the names of the columns: gpucoll-sim's order.
rows(filter, columns) = sprintf("<grep -v '^#' '%s' | awk -F, 'NR > 1 && %s {print %s}'", ARG1, filter, columns)
list(filter, columns) = system(substr(rows(filter, columns), 2, -1) . " | sort -t/ -k1,1 -k2,2n -u | tr '\\n' ' '")
of_picture(name) = sprintf("$1 \"/\" $2 == \"%s\"", name)
of_curve(name, algo) = sprintf("%s && $6 == \"%s\"", of_picture(name), algo)
# The best of its ranks is the first row; a ring and a tree may follow, to compare.
pictures = list("1", "$1 \"/\" $2")
guessed(name) = sprintf("%s && $12 == \"extrapolated\"", of_picture(name))
curve = 'plot for [algo in algos] rows(of_curve(picture, algo), "$3, $9") using 1:2 with linespoints title algo noenhanced, \
	rows(of_picture(picture), "$3, $10") using 1:2 smooth unique with lines dashtype 2 linecolor "black" title "bound"'
circles = ', rows(guessed(picture), "$3, $9") using 1:2 with points pointtype 6 pointsize 2 linecolor "black" title "extrapolated"'

set terminal svg size 900, 420 * words(pictures) dynamic font "sans,13"
set multiplot layout words(pictures), 1
set logscale xy 2
set xlabel "ranks"
set ylabel "us"
set key outside right
set grid
do for [picture in pictures] {
	algos = list(of_picture(picture), "$6")
	set title picture . " bytes" noenhanced
	eval curve . (words(list(guessed(picture), "$3")) ? circles : "")
}
unset multiplot
