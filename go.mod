module wiretape

go 1.26
